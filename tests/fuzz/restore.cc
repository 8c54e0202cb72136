// Backups that an operator passes to `varda restore`.
//
// Input: first byte even: the rest is the archive. Odd: entries, each a line with the path, two
// bytes with the length, and that many bytes. They become an archive with correct checksums at its
// end, unless the first byte has bit 1.
//
// A refused backup leaves no directory. An accepted backup gives a store with its objects, which
// can make an equal backup.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "datadir/backup_file.h"
#include "input.h"
#include "store/snapshot.h"

namespace {

using namespace varda;  // NOLINT: a program of one file

// In memory if possible, because every restore syncs.
const std::filesystem::path& directory() {
  struct Directory {
    Directory() {
      const std::filesystem::path memory = "/dev/shm";
      std::string name =
          ((std::filesystem::is_directory(memory) ? memory
                                                  : std::filesystem::temp_directory_path()) /
           "varda-fuzz-restore-XXXXXX")
              .string();
      CHECK(mkdtemp(name.data()) != nullptr);
      path = name;
    }
    ~Directory() { std::filesystem::remove_all(path); }
    std::filesystem::path path;
  };
  static const Directory made;
  return made.path;
}

codec::ByteSource pieces(const std::string& bytes) {
  return [bytes, at = std::size_t{0}]() mutable -> Result<std::string> {
    std::string out = bytes.substr(at, 5000);
    at += out.size();
    return out;
  };
}

struct Entry {
  std::string path, bytes;
};

std::string archive_of(const std::vector<Entry>& entries) {
  std::string out;
  const auto writer =
      codec::ArchiveWriter::create(codec::ArchiveFormat::kTar, [&](std::string_view bytes) {
        out += bytes;
        return Status();
      }).value();
  for (const Entry& entry : entries) {
    codec::ArchiveEntry header;
    header.path = entry.path;
    header.size_bytes = entry.bytes.size();
    if (!writer->add(header).ok() || !writer->write(entry.bytes).ok())
      return "";  // no archive can hold such a path
  }
  return writer->finish().ok() ? out : "";
}

std::string read_input(fuzz::Input& input) {
  const std::uint8_t how = input.byte();
  if (how % 2 == 0) return std::string(input.rest());
  std::vector<Entry> entries;
  std::string sums;
  while (!input.rest().empty()) {
    Entry entry{std::string(input.line()), ""};
    std::size_t length = input.byte();
    length = length << 8 | input.byte();
    while (length-- > 0 && !input.rest().empty())
      entry.bytes.push_back(static_cast<char>(input.byte()));
    sums += codec::Sha256::of(entry.bytes).hex() + "  " + entry.path + "\n";
    entries.push_back(std::move(entry));
  }
  if ((how & 2) == 0) entries.push_back({"SHA256SUMS", sums});
  return archive_of(entries);
}

void read_back(const datadir::BackupInfo& info, const std::filesystem::path& data) {
  const store::Page page = store::read_sqlite(data / "store.db").value();
  CHECK(page.entries.size() == info.objects);
  CHECK(page.revision > info.revision);
  for (const store::Entry& entry : page.entries)
    CHECK(!entry.key.empty() && entry.value != nullptr);
  const auto credentials =
      std::filesystem::exists(data / "tokens.json") || std::filesystem::exists(data / "pki");
  if (info.revision > store::Revision{1} << 52)
    return;  // the next backup may exceed the largest revision of a backup
  auto maker = datadir::BackupMaker::create({data, credentials ? datadir::Credentials::kInclude
                                                               : datadir::Credentials::kLeaveOut},
                                            page)
                   .value();
  std::string again;
  while (true) {
    const auto piece = maker->next().value();
    if (!piece) break;
    again += *piece;
  }
  CHECK(datadir::check_backup(pieces(again)).value().objects == info.objects);
  const std::filesystem::path second = directory() / "second";
  CHECK(datadir::restore_backup(pieces(again), second).ok());
  const store::Page same = store::read_sqlite(second / "store.db").value();
  CHECK(same.revision > page.revision && same.entries.size() == page.entries.size());
  for (std::size_t i = 0; i < page.entries.size(); ++i) {
    CHECK(same.entries[i].key == page.entries[i].key &&
          *same.entries[i].value == *page.entries[i].value);
  }
  std::filesystem::remove_all(second);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool quiet = [] {
    log::configure(log::Format::kText, log::Level::kError);
    return true;
  }();
  (void)quiet;
  fuzz::Input input(data, size);
  const std::string archive = read_input(input);
  const std::filesystem::path data_dir = directory() / "data";
  const auto checked = datadir::check_backup(pieces(archive));
  const auto restored = datadir::restore_backup(pieces(archive), data_dir);
  if (!restored.ok()) {
    CHECK(!restored.error().message().empty());
    CHECK(std::filesystem::is_empty(directory()));
    return 0;
  }
  CHECK(checked.ok() && checked->objects == restored->objects &&
        checked->revision == restored->revision);
  read_back(*restored, data_dir);
  std::filesystem::remove_all(data_dir);
  CHECK(std::filesystem::is_empty(directory()));
  return 0;
}
