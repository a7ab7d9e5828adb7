// Owns reading the segments and the tables of symbols of what is loaded.
#include "integration/preload/loaded_code.hpp"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace weft::preload {
namespace {

// A loaded object's tables, as far as a search by name needs them.
struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const std::uint32_t* hash = nullptr;  // DT_GNU_HASH
};

// The loader has made most addresses of a dynamic section absolute, but not those of the kernel's
// own library (vDSO).
template <class T>
const T* table_at(const dl_phdr_info& object, ElfW(Addr) value) {
  return reinterpret_cast<const T*>(value < object.dlpi_addr ? object.dlpi_addr + value : value);
}

Tables tables_of(const dl_phdr_info& object) {
  Tables tables;
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    if (object.dlpi_phdr[i].p_type != PT_DYNAMIC) {
      continue;
    }
    const auto* entry =
        reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + object.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_SYMTAB) {
        tables.symbols = table_at<ElfW(Sym)>(object, entry->d_un.d_ptr);
      } else if (entry->d_tag == DT_STRTAB) {
        tables.names = table_at<char>(object, entry->d_un.d_ptr);
      } else if (entry->d_tag == DT_GNU_HASH) {
        tables.hash = table_at<std::uint32_t>(object, entry->d_un.d_ptr);
      }
    }
  }
  return tables;
}

std::uint32_t hash_of(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name) {
    hash = hash * 33 + static_cast<unsigned char>(*name);
  }
  return hash;
}

// The table: four words; a filter of so many addresses; so many buckets, each with the number of
// its first symbol; and from the first hashed symbol on a word each, whose last bit ends a bucket.
const ElfW(Sym) * find_symbol(const Tables& tables, const char* name) {
  const std::uint32_t buckets = tables.hash[0];
  const std::uint32_t first_hashed = tables.hash[1];
  const std::size_t filter_words = tables.hash[2] * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
  const std::uint32_t* const bucket = tables.hash + 4 + filter_words;
  const std::uint32_t* const chain = bucket + buckets;
  const std::uint32_t wanted = hash_of(name);
  std::uint32_t at = buckets == 0 ? 0 : bucket[wanted % buckets];
  for (; at >= first_hashed && at != 0; ++at) {
    const std::uint32_t hash = chain[at - first_hashed];
    const ElfW(Sym)& symbol = tables.symbols[at];
    if ((hash | 1U) == (wanted | 1U) && symbol.st_shndx != SHN_UNDEF &&
        (symbol.st_info & 0xFU) == STT_FUNC &&
        std::strcmp(tables.names + symbol.st_name, name) == 0) {
      return &symbol;
    }
    if ((hash & 1U) != 0) {
      break;
    }
  }
  return nullptr;
}

struct Search {
  const char* name;
  void* found;
};

bool has_code(const dl_phdr_info& object, std::uintptr_t address) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object.dlpi_phdr[i];
    if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0 &&
        address - (object.dlpi_addr + part.p_vaddr) < part.p_memsz) {
      return true;
    }
  }
  return false;
}

int look_for_function(dl_phdr_info* object, std::size_t /*size*/, void* data) {
  auto* const search = static_cast<Search*>(data);
  if (has_code(*object, reinterpret_cast<std::uintptr_t>(&look_for_function))) {
    return 0;  // this library
  }
  const Tables tables = tables_of(*object);
  if (tables.symbols == nullptr || tables.names == nullptr || tables.hash == nullptr) {
    return 0;
  }
  if (const auto* const symbol = find_symbol(tables, search->name)) {
    search->found = reinterpret_cast<void*>(object->dlpi_addr + symbol->st_value);
  }
  return search->found != nullptr ? 1 : 0;
}

int look_for_code(dl_phdr_info* object, std::size_t /*size*/, void* data) {
  return has_code(*object, *static_cast<const std::uintptr_t*>(data)) ? 1 : 0;
}

}  // namespace

bool is_loaded_code(const void* address) {
  auto number = reinterpret_cast<std::uintptr_t>(address);
  return dl_iterate_phdr(look_for_code, &number) == 1;
}

void* find_loaded_function(const char* name) {
  Search search{name, nullptr};
  (void)dl_iterate_phdr(look_for_function, &search);
  return search.found;
}

}  // namespace weft::preload
