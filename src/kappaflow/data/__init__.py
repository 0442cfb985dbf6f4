"""What is packaged: tables, the example spectrum, networks."""
