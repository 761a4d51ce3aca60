"""Planning by denoising plans as matrices over time: the common parts of PDPP, MTID and KEPP."""
