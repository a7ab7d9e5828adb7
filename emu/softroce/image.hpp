// Owns where the guest's image is, and having it made.
#pragma once

#include <string>

#include "srd/base/result.hpp"

namespace weft::softroce {

// $XDG_CACHE_HOME/weft/softroce, or below ~/.cache.
[[nodiscard]] Result<std::string> cache_folder();

// The folder of the image of that kernel ("default", "6.12", a package), with `kernel` and `initrd`
// in it. An image that does not exist yet is made by image.sh, which says on standard error what it
// does.
[[nodiscard]] Result<std::string> make_image(const std::string& cache, const std::string& kernel);

}  // namespace weft::softroce
