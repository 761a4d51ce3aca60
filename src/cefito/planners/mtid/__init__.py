"""MTID: PDPP's diffusion, with vectors interpolated between the observations added inside."""
