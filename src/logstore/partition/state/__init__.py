"""What is known of a log besides its records, and the small files that say so: checkpoints, epochs,
producers."""
