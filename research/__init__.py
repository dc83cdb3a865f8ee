"""The paper's data sets, studies and experiments: what the library's claims rest on."""
