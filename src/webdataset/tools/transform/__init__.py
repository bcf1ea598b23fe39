"""Transform datasets: map, run commands, sort, shuffle, join, mix."""
