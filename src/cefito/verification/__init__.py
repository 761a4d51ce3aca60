"""What was wrong in a video: orders of steps, and the verifier that learns from them."""
