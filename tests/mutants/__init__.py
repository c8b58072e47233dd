"""Mutants: is each rule of the core held by a test? ``make mutants`` changes the code in small ways, one at a
time, and runs tests on each: a mutant that no test notices survives, and shows a rule that nothing holds.

* :mod:`~tests.mutants.python`: Python, with mutmut, in a copy of the checkout.
* :mod:`~tests.mutants.c`: the compiled module, by a few changes of its text, built anew in a copy.
* :mod:`~tests.mutants.rooms`: which files are changed, and which tests are run first for each.

Which mutants are tried depends on the commit: each run is another sample, and a repeated one is the same. Not
every survivor is a fault: some mutants do the same as the code.
"""
