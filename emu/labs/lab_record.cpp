// Owns the file lab.json.
//
// It is read by other versions of weft, and after a crash: what cannot be read is told as damaged,
// and never half believed.
#include "emu/labs/lab_record.hpp"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "emu/fabric/yaml_reader.hpp"

namespace weft::labs {
namespace {

using nlohmann::json;

std::string path_of(const std::string& directory) { return directory + "/lab.json"; }

}  // namespace

bool is_lab(const std::string& directory) {
  std::error_code error;
  return std::filesystem::exists(path_of(directory), error);
}

Result<LabRecord> read_record(const std::string& directory) {
  if (!is_lab(directory)) {
    return fail(ErrorCode::not_found, "'" + directory + "' is no lab's");
  }
  const auto text = fabric::read_text_file(path_of(directory));
  if (!text) {
    return tl::unexpected(text.error());
  }
  const json file = json::parse(*text, nullptr, false);
  const auto broken = [&] {
    return fail(ErrorCode::parse_error, "'" + path_of(directory) + "' is damaged");
  };
  if (!file.is_object()) {
    return broken();
  }
  try {
    LabRecord record{.engine = file.at("engine"),
                     .file = file.at("file"),
                     .text = file.at("text"),
                     .complete = file.at("complete"),
                     .is_bound = file.value("bound", false),
                     .nodes = file.at("nodes"),
                     .addresses = {}};
    for (const auto& [name, address] : file.at("addresses").items()) {
      record.addresses.push_back({name, address.get<std::string>()});
    }
    return record;
  } catch (const json::exception&) {
    return broken();
  }
}

Result<void> write_record(const std::string& directory, const LabRecord& record) {
  json addresses = json::object();
  for (const auto& [name, address] : record.addresses) {
    addresses[name] = address;
  }
  const json file{{"engine", record.engine},  {"file", record.file},
                  {"text", record.text},      {"complete", record.complete},
                  {"bound", record.is_bound}, {"nodes", record.nodes},
                  {"addresses", addresses}};
  // A file that is written in place could be cut off half-way.
  const std::string draft = path_of(directory) + ".new";
  std::error_code error;
  {
    std::ofstream out(draft, std::ios::trunc);
    // A path may hold bytes that are no UTF-8. They are replaced: paths in the record are only
    // shown to people.
    out << file.dump(1, ' ', false, json::error_handler_t::replace) << "\n" << std::flush;
    if (!out) {
      return fail(ErrorCode::io_error, "cannot write '" + draft + "': is the disk full?");
    }
  }
  std::filesystem::rename(draft, path_of(directory), error);
  return error ? Result<void>(fail(ErrorCode::io_error,
                                   "cannot write '" + path_of(directory) + "': " + error.message()))
               : Result<void>{};
}

}  // namespace weft::labs
