"""Who gets which slots while env servers join and leave."""
