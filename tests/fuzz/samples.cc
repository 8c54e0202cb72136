// Samples for training. The first byte selects the format, the second the task, the third the
// model's input. A dataset in memory either opens or gives an error; its batches are complete or an
// error. Records in pieces equal records at once, and their number is that of room dataset.
#include "samples/samples.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string_view>

#include "base/check.h"
#include "codec/image.h"
#include "dataset/testing/reference.h"
#include "input.h"
#include "samples/internal/records.h"

namespace {

using namespace varda;

/// Files of one folder, /d, and of the folders in it.
class MemoryFolder final : public os::ReadableTree {
 public:
  explicit MemoryFolder(std::map<std::string, std::string> files) : files_(std::move(files)) {}

  Result<os::FileFacts> facts(const os::Path& path) override {
    os::FileFacts out;
    const std::string name = key(path);
    if (const auto at = files_.find(name); at != files_.end()) {
      out.size_bytes = at->second.size();
      return out;
    }
    out.kind = os::FileKind::kDirectory;
    const auto below = files_.lower_bound(name + "/");
    if (below != files_.end() && below->first.starts_with(name + "/")) return out;
    return Error(Code::kNotFound, name);
  }
  Result<std::unique_ptr<os::ReadableFile>> open(const os::Path& path) override {
    CHECK(key(path) == "/d" || key(path).starts_with("/d/"));
    const auto at = files_.find(key(path));
    if (at == files_.end()) return Error(Code::kNotFound, key(path));
    return std::make_unique<File>(at->second);
  }
  Result<std::unique_ptr<os::ReadableDirectory>> list(const os::Path& path) override {
    TRY(const os::FileFacts found, facts(path));
    if (found.kind != os::FileKind::kDirectory) return Error(Code::kInvalid, "a file");
    return std::make_unique<Directory>(*this, key(path));
  }

 private:
  static std::string key(const os::Path& path) {
    std::string out = path.lexically_normal().string();
    while (out.ends_with('/')) out.pop_back();
    return out;
  }

  class File final : public os::ReadableFile {
   public:
    explicit File(const std::string& bytes) : bytes_(bytes) {}
    Result<std::size_t> read(std::uint64_t offset, std::span<char> into) override {
      if (offset >= bytes_.size()) return std::size_t{0};
      const std::size_t count = std::min<std::size_t>(into.size(), bytes_.size() - offset);
      std::memcpy(into.data(), bytes_.data() + offset, count);
      return count;
    }
    Result<os::FileFacts> facts() override {
      os::FileFacts out;
      out.size_bytes = bytes_.size();
      return out;
    }

   private:
    const std::string& bytes_;
  };

  class Directory final : public os::ReadableDirectory {
   public:
    Directory(MemoryFolder& tree, std::string path) : tree_(tree), path_(std::move(path)) {
      for (const auto& [name, bytes] : tree.files_) {
        if (!name.starts_with(path_ + "/")) continue;
        const std::size_t end = name.find('/', path_.size() + 1);
        Entry entry{name.substr(path_.size() + 1, end - path_.size() - 1), {}};
        entry.facts.size_bytes = bytes.size();
        if (end != std::string::npos) entry.facts.kind = os::FileKind::kDirectory;
        if (entries_.empty() || entries_.back().name != entry.name) entries_.push_back(entry);
      }
    }
    Result<std::optional<Entry>> next() override {
      if (at_ == entries_.size()) return std::optional<Entry>();
      return std::optional(entries_[at_++]);
    }
    Result<std::unique_ptr<os::ReadableFile>> open(const std::string& name) override {
      return tree_.open(path_ + "/" + name);
    }
    Result<std::unique_ptr<os::ReadableDirectory>> descend(const std::string& name) override {
      return tree_.list(path_ + "/" + name);
    }

   private:
    MemoryFolder& tree_;
    const std::string path_;
    std::vector<Entry> entries_;
    std::size_t at_ = 0;
  };

  const std::map<std::string, std::string> files_;
};

std::vector<std::string> fields(const samples::internal::Record& record) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < record.size(); ++i) out.emplace_back(record[i]);
  return out;
}

void check_records(std::string_view text, bool csv) {
  const samples::internal::TableDialect dialect{csv ? ',' : '\t', csv};
  samples::internal::Record whole(dialect), part(dialect);
  const auto wanted = dataset::testing::reference_csv(text, dialect.delimiter, csv ? '"' : '\0');
  std::size_t at = text.starts_with("\xEF\xBB\xBF") ? 3 : 0, records = 0;
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    const auto length = whole.parse(rest, true);
    if (!length.ok()) {
      CHECK(wanted.malformed > 0);
      return;
    }
    for (std::size_t cut = rest.size() / 2; cut > 0; cut /= 2) {
      const auto early = part.parse(rest.substr(0, cut), false);
      // A cut may hide a misplaced quote, but a complete record is final.
      if (!early.ok() || !*early) continue;
      CHECK(**early == **length && fields(part) == fields(whole));
    }
    CHECK(**length > 0 && **length <= rest.size());
    if (!whole.blank()) ++records;
    at += **length;
  }
  CHECK(records == wanted.samples + wanted.malformed);
}

void check_dataset(samples::Options options, const std::string& path,
                   std::map<std::string, std::string> files) {
  MemoryFolder tree(std::move(files));
  const samples::Task task = options.task;
  const auto opened = samples::Dataset::open(Context::background(), tree, path, std::move(options));
  if (!opened.ok()) {
    CHECK(!opened.error().message().empty());
    return;
  }
  const samples::Dataset& data = **opened;
  CHECK(data.size() > 0 && data.fingerprint().size() == 71);
  std::vector<std::size_t> some;
  for (std::size_t i = 0; i < std::min<std::size_t>(data.size(), 16); ++i) some.push_back(i);
  for (const std::size_t index : some) {
    CHECK(!data.place(index).empty());
    (void)data.picture(index);
  }
  const auto batch = data.read(some, {}, 1);
  if (!batch.ok()) return;
  CHECK(batch->input.shape()[0] == static_cast<std::int64_t>(some.size()));
  for (const float value : batch->input.values<float>()) CHECK(std::isfinite(value));
  if (task == samples::Task::kClassification) {
    CHECK(batch->labels.size() == some.size());
    for (const std::int64_t label : batch->labels)
      CHECK(label >= 0 && label < static_cast<std::int64_t>(data.classes().size()));
  } else {
    CHECK(batch->targets.size() == some.size() * data.outputs());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  static const std::string png =
      codec::encode_png({2, 2, 1, std::vector<std::uint8_t>(4, 9)}).value();
  constexpr std::string_view kFormats[] = {"csv", "tsv", "txt", "idx", "npy", "npz", "coco", "voc"};
  static const tensor::Shape kInputs[] = {{-1, 1}, {-1, 2}, {-1, 2, 2}, {-1, 1, 2, 2}};
  const std::string_view format = kFormats[input.byte() % std::size(kFormats)];
  samples::Options options;
  options.format = format;
  options.task = static_cast<samples::Task>(input.byte() % 3);
  options.input = {"x", tensor::DType::kFp32, kInputs[input.byte() % std::size(kInputs)]};
  if (format == "idx" || format == "npy") {
    // Two files; the length of the first comes before both.
    const std::size_t length = input.byte() + 256u * input.byte();
    const std::string_view both = input.rest();
    const std::string first(both.substr(0, length)), second(both.substr(first.size()));
    const bool idx = format == "idx";
    check_dataset(options, "/d",
                  {{idx ? "/d/images-idx3" : "/d/x.npy", first},
                   {idx ? "/d/labels-idx1" : "/d/y.npy", second}});
    return 0;
  }
  const std::string text(input.rest());
  if (format == "csv" || format == "tsv") check_records(text, format == "csv");
  const bool voc = format == "voc";
  check_dataset(
      options, voc ? "/d" : "/d/f." + std::string(format),
      {{voc ? "/d/Annotations/1.xml" : "/d/f." + std::string(format), text}, {"/d/1.png", png}});
  return 0;
}
