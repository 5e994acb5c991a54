"""Tests of the systems on guards and attacks."""
