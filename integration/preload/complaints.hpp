// Owns what this library says to the person who runs the program.
#pragma once

#include <string>

namespace weft::preload {

// These do not change errno.
void complain(const std::string& text);
void complain_of_few_descriptors();

}  // namespace weft::preload
