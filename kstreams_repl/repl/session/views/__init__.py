"""Views of an application: SQL over topics and stores, samples, taps, counts, the picture's overlay."""
