// Owns the functions of fmt that its headers only declare, compiled from those headers: the shared
// library has another name in each release of Debian, and one package of weft serves several.
// Not header-only everywhere, because then each file that formats takes a fifth longer to compile.
#include <fmt/format.h>
