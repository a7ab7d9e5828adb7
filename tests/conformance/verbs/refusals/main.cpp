// Owns a program of ordinary verbs that asks for what must be refused, and looks at how: the errno,
// or the status of a completion, as Linux's soft RoCE gives them. It ends with 0 when all were
// right; what was not is printed.
//
//   weft_verbs_refusals [CHAPTER...]
#include <string_view>

#include "tests/conformance/verbs/refusals/bench.hpp"

int main(int argc, char** argv) {
  using namespace weft::conformance;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Bench bench;
  Book book;
  struct Chapter {
    std::string_view name;
    void (*run)(const Bench&, Book&);
  };
  constexpr Chapter kChapters[] = {{"states", states}, {"objects", objects}, {"requests", requests},
                                   {"keys", keys},     {"windows", windows}, {"events", events}};
  for (const Chapter& chapter : kChapters) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) {
      wanted = wanted || chapter.name == argv[i];
    }
    if (wanted) {
      chapter.run(bench, book);
    }
  }
  return book.finish() == 0 ? 0 : 1;
}
