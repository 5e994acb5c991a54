"""Systems whose core is a measure of what role-conditioned agents say and do."""
