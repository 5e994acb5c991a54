"""Systems that keep roles within their bounds, and systems that attack them."""
