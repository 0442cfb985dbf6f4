"""Where line data come from: ExoMol bins, ExoJAX databases, cross-section files, FastChem."""
