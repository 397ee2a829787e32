"""Commands about this computer: doctor. machine is what it finds."""
