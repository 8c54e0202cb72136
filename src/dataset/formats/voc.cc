// voc, also named xml: Pascal VOC, a folder with Annotations/*.xml, or only the annotations.
#include <memory>
#include <optional>

#include "dataset/internal/fingerprint.h"
#include "dataset/internal/folder.h"
#include "dataset/internal/scanner.h"
#include "dataset/voc_annotation.h"

namespace varda::dataset {
namespace {

constexpr std::size_t kVocReadBytes = 64 << 10;

bool is_xml(std::string_view name) { return has_extension(name, ".xml"); }

class VocScan final : public TreeScan {
 public:
  /// `name`: the name of the format in messages.
  explicit VocScan(std::string_view name) : name_(name) {}

  Status begin(const Surroundings& around) override {
    root_ = around.root;
    const auto facts = around.tree.facts(around.root / "Annotations");
    bare_ = !facts.ok() && facts.error().code() == Code::kNotFound;
    if (!facts.ok() && !bare_) return facts.error();
    found_.tally.has_classes = true;
    const WalkOptions options{
        .below = bare_ ? "" : "Annotations", .depth_max = 0, .wanted = is_xml};
    walk_.emplace(around, options, folder_,
                  [this, &around](const FolderEntry& entry) { return file(around, entry); });
    return walk_->begin();
  }
  Result<bool> resume(const Context& ctx, std::uint64_t steps) override {
    TRY(const bool all, walk_->resume(ctx, steps));
    found_.entries = walk_->entries();
    if (!all) return false;
    if (bare_ && found_.tally.samples + found_.tally.malformed == 0)
      return Error(Code::kInvalid, root_.string() +
                                       " has neither a folder Annotations nor a file "
                                       "*.xml, as " +
                                       std::string(name_) + " has");
    found_.fingerprint = files_.hex();
    return true;
  }
  const Found& found() const override { return found_; }

 private:
  std::uint64_t file(const Surroundings& around, const FolderEntry& entry) {
    const std::uint64_t before = found_.bytes;
    if (auto hash = one(around, entry); hash.ok()) {
      files_.add(Hash::of(entry.path + '\0' + hash->hex()));
    } else if (hash.error().code() != Code::kNotFound) {  // removed meanwhile
      folder_.inexact(entry.path, hash.error().message());
    }
    return found_.bytes - before;
  }

  Result<Hash> one(const Surroundings& around, const FolderEntry& entry) {
    TRY(const auto file, entry.directory != nullptr ? entry.directory->open(entry.name)
                                                    : around.tree.open(entry.absolute));
    TRY(const os::FileFacts before, file->facts());
    VocAnnotation annotation;
    ContentHash hash;
    std::uint64_t at = 0;
    for (;;) {
      TRY(const std::size_t count, file->read(at, buffer_));
      const std::string_view bytes(buffer_.data(), count);
      at += count;
      found_.bytes += count;
      hash.update(bytes);
      if (at > kXmlBytesMax)
        annotation.fail("longer than " + std::to_string(kXmlBytesMax >> 20) + " MiB");
      if (!annotation.feed(bytes, count < buffer_.size()) || count < buffer_.size()) break;
    }
    TRY(const os::FileFacts after, file->facts());
    if (!(after == before)) folder_.inexact(entry.path, "it was written to while it was read");
    if (!annotation.why().empty()) {
      folder_.malformed(entry.path, annotation.why(), annotation.line(), annotation.byte());
    } else {
      ++found_.tally.samples;
      for (const VocObject& object : annotation.objects())
        add_bounded(found_.tally.classes, found_.tally.further_classes, object.name);
    }
    return hash.result();
  }

  const std::string_view name_;
  os::Path root_;
  bool bare_ = false;  // without a folder Annotations
  Found found_;
  FolderTally folder_{found_.tally};
  SetHash files_;
  std::string buffer_ = std::string(kVocReadBytes, '\0');
  std::optional<Walk> walk_;
};

}  // namespace

extern const Format kVoc;
const Format kVoc{.name = "voc",
                  .sample = "a file Annotations/*.xml",
                  .tree = [](const FormatOptions&) -> std::unique_ptr<TreeScan> {
                    return std::make_unique<VocScan>("voc");
                  }};

extern const Format kXml;
const Format kXml{.name = "xml",
                  .sample = "as of voc",
                  .tree = [](const FormatOptions&) -> std::unique_ptr<TreeScan> {
                    return std::make_unique<VocScan>("xml");
                  }};

}  // namespace varda::dataset
