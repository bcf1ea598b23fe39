"""Words that everything else uses: settings, the counts of a pass, who am I, stages, text."""
