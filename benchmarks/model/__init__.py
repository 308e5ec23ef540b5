"""`hierring model`: what an all-reduce would cost on other machines than those measured."""
