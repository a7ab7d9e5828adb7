// Owns the choice of a host for a container that was given "any" of them.
#pragma once

#include <cstddef>
#include <string>

namespace weft::preload {

// $WEFT_HOST of such a container. $WEFT_DEVICES is then a folder of links: "count" leads to the
// number of hosts, and "0", "1" ... to their device trees, as seen from the folder above.
inline constexpr const char* kAnyHost = "any";

// Writes the tree that this container's processes all choose into `root`: its mount namespace
// decides. False: this container was given a host, or none. Allocates nothing.
[[nodiscard]] bool choose_tree(char* root, std::size_t room);

// The host of a tree that was chosen so: trees lie in folders with their hosts' names.
[[nodiscard]] std::string host_of_tree(const char* root);

}  // namespace weft::preload
