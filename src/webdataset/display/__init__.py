"""How things are shown in notebooks, terminals and browsers: pipelines, samples, fields, statistics, loaders."""
