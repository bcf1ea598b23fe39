"""The programs of earlier packages under their old names and with their old flags."""
