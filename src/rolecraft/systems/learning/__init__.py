"""Systems whose core is how a policy learns."""
