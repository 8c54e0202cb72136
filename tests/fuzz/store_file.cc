// The store's file after disk damage: it is refused or serves the remaining data, and never ends
// the process.
//
// The first byte selects the damaged file, the database or its log. Then come changes of four bytes
// each: place, kind, value.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>

#include "base/check.h"
#include "input.h"
#include "store/store.h"

namespace {

using namespace varda;  // NOLINT: a program of one file
namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

constexpr store::Options kOptions{.history_events_max = 16};

/// A directory, in memory if possible, with the files of a closed store and of a killed store (with
/// its log).
struct Fixture {
  Fixture() {
    const fs::path shm = "/dev/shm";
    std::string pattern =
        (fs::is_directory(shm) ? shm : fs::temp_directory_path()) / "varda_fuzz_XXXXXX";
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    root = pattern;
    {
      auto made = store::open_sqlite(root / "made.db", kOptions).value();
      for (int i = 0; i < 40; ++i)
        CHECK(made->put("/registry/key" + std::to_string(i % 11), std::string(200, 'a' + i % 26))
                  .ok());
      CHECK(made->remove("/registry/key3").ok());
      killed = read(root / "made.db");
      log = read(root / "made.db-wal");
    }
    closed = read(root / "made.db");
    CHECK(!closed.empty() && !killed.empty() && !log.empty());
  }
  ~Fixture() { fs::remove_all(root); }
  fs::path root;
  std::string closed, killed, log;
};

void damage(std::string& bytes, fuzz::Input& input) {
  while (!input.rest().empty() && !bytes.empty()) {
    const std::size_t place = (input.byte() << 8 | input.byte()) % bytes.size();
    const unsigned kind = input.byte(), value = input.byte();
    switch (kind % 8) {
      case 0:
        bytes.resize(place);  // truncated
        break;
      case 1:
        for (std::size_t i = place; i < std::min(place + value, bytes.size()); ++i)
          bytes[i] = 0;  // a lost sector
        break;
      case 2:
        bytes[place] = static_cast<char>(bytes[place] ^ (1 << value % 8));
        break;
      case 3:
        bytes[place % 100] = static_cast<char>(value);  // the header
        break;
      case 4:
        // A page overwrites another page.
        if (const std::size_t page = 4096, pages = bytes.size() / page; pages > 1)
          bytes.replace(place % pages * page, page, std::string(bytes, value % pages * page, page));
        break;
      default:
        bytes[place] = static_cast<char>(value);
    }
  }
}

void use(const fs::path& file) {
  auto opened = store::open_sqlite(file, kOptions);
  if (!opened.ok()) {
    // An agent starts over after damage, but stops for good at an internal error.
    if (opened.error().code() == Code::kInternal)
      std::fputs((opened.error().message() + "\n").c_str(), stderr);
    CHECK(opened.error().code() != Code::kInternal && !opened.error().message().empty());
    return;
  }
  store::Store& store = **opened;
  const auto page = store.list({});
  CHECK(page.ok());
  for (const auto& entry : page->entries) {
    CHECK(entry.created > 0 && entry.created <= entry.modified &&
          entry.modified <= store.revision());
    CHECK(store.get(entry.key).value()->modified == entry.modified);
  }
  if (auto watch = store.watch("", store.oldest()); watch.ok()) {
    store::Revision last = 0;
    const auto events = (*watch)->poll();
    for (const auto& event : events.value_or({})) {
      CHECK(event.entry.modified >= last);
      last = event.entry.modified;
    }
  }
  const store::Revision before = store.revision();
  if (const auto put = store.put("/registry/new", "value"); put.ok()) {
    CHECK(*put == before + 1 && *store.get("/registry/new").value()->value == "value");
    opened->reset();
    // Acknowledged data is there again, unless the damaged file is refused now.
    if (const auto again = store::open_sqlite(file, kOptions); again.ok()) {
      CHECK((*again)->revision() >= *put);
      CHECK((*again)->get("/registry/new").value().has_value());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Fixture fixture;
  fuzz::Input input(data, size);
  const fs::path file = fixture.root / "store.db", wal = fixture.root / "store.db-wal";
  for (const auto& entry : fs::directory_iterator(fixture.root)) {
    if (entry.path().filename().string().starts_with("store.db")) fs::remove(entry.path());
  }
  const unsigned which = input.byte() % 3;
  std::string bytes = which == 0 ? fixture.closed : fixture.killed, log = fixture.log;
  damage(which == 2 ? log : bytes, input);
  write(file, bytes);
  if (which != 0) write(wal, log);
  use(file);
  return 0;
}
