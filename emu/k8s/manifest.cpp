// Owns reading files of manifests.
//
// A file has several documents, in YAML or JSON. One that is malformed must not hide the others:
// all mistakes are to be told at once. Files may come from anybody, so that nothing here may run
// for ever or take all memory.
#include "emu/k8s/manifest.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "emu/k8s/object_name.hpp"

namespace weft::k8s {
namespace {

// More is no manifest that a person wrote.
constexpr std::size_t kMaxDocuments = 10'000;
constexpr std::size_t kMaxValues = 2'000'000;  // of a file, with what its aliases stand for
// Readers walk by recursion; this many frames are far from the stack's end.
constexpr std::size_t kMaxDepth = 300;  // of values within values

// Whether the line begins ("---") or ends ("...") a document.
bool is_separator(std::string_view line) {
  return (line.starts_with("---") || line.starts_with("...")) &&
         (line.size() == 3 || line[3] == ' ' || line[3] == '\t' || line[3] == '\r');
}

// Where the braces that open at `begin` close, texts in quotes left out; npos if they do not.
std::size_t end_of_braces(const std::string& text, std::size_t begin) {
  std::size_t depth = 0;
  char quote = 0;
  for (std::size_t at = begin; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != 0) {
      at += quote == '"' && c == '\\' ? 1 : 0;
      quote = c == quote ? '\0' : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return at + 1;
    }
  }
  return std::string::npos;
}

struct Document {
  std::string text;
  int lines_before = 0;  // in the file
};

int count_lines(std::string_view text) { return static_cast<int>(std::ranges::count(text, '\n')); }

// JSON objects may follow each other without a line between them.
void add_documents(Document document, std::vector<Document>& documents) {
  constexpr const char* kSpace = " \t\r\n";
  const std::string& text = document.text;
  std::size_t from = 0;
  int lines_before = document.lines_before;
  for (std::size_t begin = text.find_first_not_of(kSpace);
       begin != std::string::npos && text[begin] == '{';) {
    const std::size_t end = end_of_braces(text, begin);
    begin = end == std::string::npos ? end : text.find_first_not_of(kSpace, end);
    if (begin != std::string::npos && text[begin] == '{') {
      documents.push_back({text.substr(from, end - from), lines_before});
      lines_before += count_lines(std::string_view(text).substr(from, begin - from));
      from = begin;
    }
  }
  documents.push_back({text.substr(from), lines_before});
}

// The documents of a file. The parser's own loop over them does not end where one of them is
// malformed, and ends at the first that is empty.
std::vector<Document> documents_of(const std::string& text) {
  std::vector<Document> documents;
  Document document;
  int lines = 0;
  bool is_empty = true;
  const auto finish = [&] {
    if (!is_empty && documents.size() <= kMaxDocuments) {
      add_documents(std::move(document), documents);
    }
    document = {"", lines};
    is_empty = true;
  };
  for (std::size_t at = 0; at < text.size(); ++lines) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    if (is_separator(line)) {
      finish();
      // A document may begin in the separator's own line.
      document.text += line.starts_with("---") ? line : "";
      is_empty = line.find_first_not_of(" \t\r", 3) == std::string_view::npos;
    } else if (!is_empty || !line.starts_with('%')) {  // directives stand before a document
      document.text += line;
      is_empty = is_empty && line.find_first_not_of(" \t\r") == std::string_view::npos;
    }
    if (end != text.size()) {
      document.text += '\n';
    }
    at = end + 1;
  }
  finish();
  return documents;
}

// The line of the file, for people, who count from 1; 0 if it is not known.
int line_of(const YAML::Mark& mark, int lines_before) {
  return mark.is_null() ? 0 : lines_before + mark.line + 1;
}

// Thrown for a document that aliases make endless or enormous: a few hundred bytes can stand for
// billions of values.
struct Endless : YAML::Exception {
  using YAML::Exception::Exception;
};

// Walks through a document and resolves its merge keys (`<<: *base`), so that readers find what the
// API server is sent. Throws where the document contains itself, or its aliases stand for more than
// a file can hold.
class Resolver {
 public:
  void resolve(YAML::Node node, std::size_t depth) {
    if (++values_ > kMaxValues) {
      throw Endless(node.Mark(), "has too many values");
    }
    if (depth > kMaxDepth) {
      throw Endless(node.Mark(), "has values within values without end");
    }
    if (node.IsSequence()) {
      for (const YAML::Node& item : node) {
        resolve(item, depth + 1);
      }
    } else if (node.IsMap()) {
      for (const auto& pair : node) {
        resolve(pair.second, depth + 1);
      }
      if (const YAML::Node merged = value_of(node, "<<"); merged.IsDefined()) {
        std::set<std::string> known;
        for (const auto& pair : node) {
          known.insert(text_of(pair.first));
        }
        merge(merged, node, known);
        node.remove("<<");
      }
    }
  }

 private:
  // Keys that are there already, which are `known`, stay as they are. (The parser looks through all
  // keys of a map to find one.)
  static void merge(const YAML::Node& from, YAML::Node& into, std::set<std::string>& known) {
    if (from.IsSequence()) {
      for (const YAML::Node& one : from) {
        merge(one, into, known);
      }
    } else if (from.IsMap()) {
      for (const auto& pair : from) {
        if (known.insert(text_of(pair.first)).second) {
          into.force_insert(pair.first, pair.second);
        }
      }
    }
  }

  std::size_t values_ = 0;
};

// Objects without a namespace are applied to the one that kubectl is told, "default" otherwise.
void add_object(const std::string& file, int lines_before, const YAML::Node& root,
                Findings& findings, std::vector<Manifest>& manifests) {
  const FilePlace place{file, line_of(root.Mark(), lines_before)};
  if (!root.IsMap()) {
    findings.error(place, "is no object", "a manifest has keys: apiVersion, kind, metadata, ...");
    return;
  }
  const std::string kind = text_of(value_of(root, "kind"));
  if (kind.empty() || text_of(value_of(root, "apiVersion")).empty()) {
    findings.error(place,
                   kind.empty() ? "an object without 'kind'" : kind + " without 'apiVersion'",
                   "give both, as the API server refuses it otherwise");
    return;
  }
  // As `kubectl get -o yaml` prints several objects.
  if (kind.ends_with("List") && value_of(root, "items").IsSequence()) {
    for (const YAML::Node& item : value_of(root, "items")) {
      add_object(file, lines_before, item, findings, manifests);
    }
    return;
  }
  const YAML::Node metadata = value_of(root, "metadata");
  Manifest manifest{kind,
                    text_of(value_of(metadata, "name")),
                    text_of(value_of(metadata, "namespace"), "default"),
                    place,
                    lines_before,
                    root};
  if (manifest.name_space.empty()) {
    manifest.name_space = "default";  // as if it were not there
  }
  if (manifest.name.empty()) {
    // The API server puts letters of its own behind this name.
    manifest.name = kept_of_generate_name(text_of(value_of(metadata, "generateName")));
  }
  if (manifest.name.empty()) {
    findings.error(place, kind + " without 'metadata.name'", "give it a name");
    return;
  }
  manifests.push_back(std::move(manifest));
}

}  // namespace

bool Findings::has_errors() const {
  return std::ranges::any_of(list_,
                             [](const ManifestFinding& finding) { return finding.is_error; });
}

std::vector<Manifest> load_manifests(const ManifestFile& file, Findings& findings) {
  std::vector<Manifest> manifests;
  Resolver resolver;
  std::size_t documents = 0;
  for (const auto& [text, lines_before] : documents_of(file.text)) {
    try {
      const YAML::Node root = YAML::Load(text);
      if (!root.IsDefined() || root.IsNull()) {
        continue;
      }
      if (++documents > kMaxDocuments) {
        findings.error({file.name, line_of(root.Mark(), lines_before)},
                       "is document number " + std::to_string(documents) +
                           ": it and what follows are not read",
                       "divide the file");
        break;
      }
      resolver.resolve(root, 0);
      add_object(file.name, lines_before, root, findings, manifests);
    } catch (const Endless& problem) {
      findings.error({file.name, line_of(problem.mark, lines_before)}, problem.msg,
                     "look for an anchor (&NAME) whose alias (*NAME) is within it or repeated");
    } catch (const YAML::Exception& problem) {
      findings.error({file.name, line_of(problem.mark, lines_before)},
                     "is not valid YAML: " + problem.msg,
                     "often an indentation, a tab, or a quote that is not closed");
    }
  }
  return manifests;
}

FilePlace place_of(const Manifest& manifest, const YAML::Node& node) {
  return {manifest.place.file, node.IsDefined() ? line_of(node.Mark(), manifest.lines_before) : 0};
}

YAML::Node value_of(const YAML::Node& map, const char* key) {
  if (!map.IsDefined() || !map.IsMap()) {
    return YAML::Node(YAML::NodeType::Undefined);
  }
  const YAML::Node& constant = map;  // indexing a mutable node would insert the key
  return constant[key];
}

std::string text_of(const YAML::Node& node, const std::string& otherwise) {
  return node.IsDefined() && node.IsScalar() ? node.Scalar() : otherwise;
}

}  // namespace weft::k8s
