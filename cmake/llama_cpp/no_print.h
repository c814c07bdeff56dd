// Included ahead of llama.cpp's parser of grammars, which writes to stderr what it tells its caller
// as well, the grammar included. A library does not print, and a server's grammars come from
// anybody.
#include <cstdio>

#define fprintf(...) static_cast<void>(0)
