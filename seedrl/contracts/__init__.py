"""What users bring, checked by shapes when it is called or traced: one line for each mistake."""
