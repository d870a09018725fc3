"""The names of this project's criterions; the command line checks a name before it imports torch."""

CRITERIONS = (  # each is a file in criterions/
    "alum_vat",
    "creat",
    "flooding",
    "freeat",
    "freelb",
    "infobert",
    "noise",
    "pgd",
    "r3f",
    "smart",
    "standard",
    "tavat",
    "yopo",
)
