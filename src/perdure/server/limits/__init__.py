"""How much and how often."""
