"""HTTP: requests, connections, streams that resume, reading ahead."""
