/* The two halves of columns.c. */

#ifndef LOGSTORE_COLUMNS_H
#define LOGSTORE_COLUMNS_H

#include "compiled.h"

int add_columns_decode(PyObject *module);
int add_columns_encode(PyObject *module);

#endif
