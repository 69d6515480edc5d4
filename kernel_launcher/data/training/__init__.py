"""Token ids and labels as a trainer takes them: encoding, lengths, packing, and the file of all rows."""
