// Owns walking a path step by step, as the kernel would if the emulated tree were part of /sys and
// /dev.
#pragma once

#include "integration/preload/path_space.hpp"
#include "integration/preload/paths.hpp"

namespace weft::preload {

// Whether the path, absolute and plain, belongs to the emulation.
[[nodiscard]] bool is_emulated(const char* path);

// Resolves an absolute path to where it leads, as the program sees it, in space.walked: without
// ".." and without links, except a last one that stays. False: it never touches the emulated tree,
// or is too long, or leads nowhere.
[[nodiscard]] bool walk_path(const char* root, const char* path, LastLink last, PathSpace& space);

}  // namespace weft::preload
