"""Systems whose core is a world that agents act in."""
