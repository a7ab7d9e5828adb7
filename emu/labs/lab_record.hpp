// Owns what a lab notes in the directory of its network, for whoever ends it or asks about it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emu/labs/container_words.hpp"
#include "srd/base/result.hpp"

namespace weft::labs {

// What a lab was made from and how far its start has come.
struct LabRecord {
  std::string engine;     // its program
  std::string file;       // the lab file's path
  std::string text;       // what was in it
  bool complete = false;  // false: its start goes on, or was broken off
  bool is_bound = false;  // it ends with the program that started it
  std::vector<std::string> nodes;
  std::vector<NodeAddress> addresses;  // in a network of its own
};

// Whether there is a record: the network in that directory is a lab's.
[[nodiscard]] bool is_lab(const std::string& directory);
// `not_found`: the network is no lab.
[[nodiscard]] Result<LabRecord> read_record(const std::string& directory);
// It appears whole, or stays as it was.
[[nodiscard]] Result<void> write_record(const std::string& directory, const LabRecord& record);

}  // namespace weft::labs
