"""Plans as matrices over time that are denoised: what PDPP and the methods built on it share.

A method says which blocks of columns its matrices have (`matrix`), what of them is given, what the
rows weigh in its loss (`loss`), and perhaps what is added inside the U-Net's blocks (`unet`). The
network, the loss, the sampler and the plans made of its scores are the same.
"""
