"""`hierring report`: what `hierring bench` measured, for a log and for people."""
