"""What is packaged, made here and nowhere else: opacity, chemistry, CIA, masks, the example, the networks."""
