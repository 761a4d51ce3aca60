"""Planning by denoising plans as matrices over time: the common parts of PDPP, MTID and KEPP.

A method gives the blocks of columns of its matrices (`matrix`), the weights of the rows in the
loss, and perhaps modules inside the U-Net's blocks (`unet`).
"""
