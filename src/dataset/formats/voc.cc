// voc, also named xml: Pascal VOC, a folder with Annotations/*.xml, or only the annotations.
// http://host.robots.ox.ac.uk/pascal/VOC/
//
// The XML is untrusted. Expat parses it in pieces and fetches nothing. The parser stops at the
// first entity declaration, so no entity is ever expanded.
#include <algorithm>
#include <expat.h>
#include <memory>
#include <optional>
#include <vector>

#include "base/text.h"
#include "dataset/internal/fingerprint.h"
#include "dataset/internal/folder.h"
#include "dataset/internal/scanner.h"

namespace varda::dataset {
namespace {

constexpr std::size_t kElementDepthMax = 64;
constexpr std::size_t kObjectsMax = 100'000;
constexpr std::size_t kVocReadBytes = 64 << 10;

bool is_xml(std::string_view name) { return has_extension(name, ".xml"); }

/// Parses one file: whether it is an annotation, and its objects.
class Annotation {
 public:
  Annotation() : parser_(XML_ParserCreate(nullptr), XML_ParserFree) {
    if (!parser_) return;
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(
        parser_.get(),
        [](void* self, const XML_Char* name, const XML_Char**) {
          static_cast<Annotation*>(self)->begin(name);
        },
        [](void* self, const XML_Char*) { static_cast<Annotation*>(self)->end(); });
    XML_SetCharacterDataHandler(parser_.get(), [](void* self, const XML_Char* text, int size) {
      static_cast<Annotation*>(self)->text({text, static_cast<std::size_t>(size)});
    });
    XML_SetEntityDeclHandler(
        parser_.get(), [](void* self, const XML_Char*, int, const XML_Char*, int, const XML_Char*,
                          const XML_Char*, const XML_Char*, const XML_Char*) {
          static_cast<Annotation*>(self)->fail("it declares entities, which are not expanded");
        });
  }

  /// False once the file is known not to be an annotation.
  bool feed(std::string_view bytes, bool last) {
    if (!parser_) {
      fail("no memory to parse it");
    } else if (why_.empty() &&
               XML_Parse(parser_.get(), bytes.data(), static_cast<int>(bytes.size()),
                         last ? 1 : 0) != XML_STATUS_OK) {
      fail(XML_ErrorString(XML_GetErrorCode(parser_.get())));
    }
    return why_.empty();
  }
  const std::string& why() const { return why_; }
  std::uint64_t line() const { return line_; }
  std::uint64_t byte() const { return byte_; }
  const std::vector<std::string>& objects() const { return objects_; }

  void fail(std::string why) {
    if (!why_.empty()) return;
    why_ = std::move(why);
    if (!parser_) return;
    line_ = XML_GetCurrentLineNumber(parser_.get());
    byte_ =
        static_cast<std::uint64_t>(std::max<XML_Index>(XML_GetCurrentByteIndex(parser_.get()), 0));
    XML_StopParser(parser_.get(), XML_FALSE);
  }

 private:
  void begin(std::string_view name) {
    // Only annotation/object/name names a class; annotation/object/part/name names a part.
    if (depth_ == 0 && name != "annotation") return fail("its root is not <annotation>");
    if (depth_ == 1) in_object_ = name == "object";
    in_name_ = in_object_ && depth_ == 2 && name == "name" && !named_;
    if (depth_ == 1) named_ = false;
    if (in_name_) name_.clear();
    if (++depth_ > kElementDepthMax)
      fail("elements nested deeper than " + std::to_string(kElementDepthMax));
  }
  void text(std::string_view text) {
    if (in_name_ && depth_ == 3 && name_.size() <= kClassNameBytesMax) name_ += text;
  }
  void end() {
    --depth_;
    if (in_name_ && depth_ == 2) {
      in_name_ = false;
      named_ = true;
      name_ = std::string(trim(name_));
      if (name_.empty()) return fail("an object without a name");
      if (name_.size() > kClassNameBytesMax)
        return fail("the name of an object is longer than " + std::to_string(kClassNameBytesMax) +
                    " bytes");
      objects_.push_back(name_);
      if (objects_.size() > kObjectsMax)
        fail("more than " + std::to_string(kObjectsMax) + " objects");
    } else if (depth_ == 1 && in_object_) {
      in_object_ = false;
      if (!named_) fail("an object without a name");
    }
  }

  const std::unique_ptr<XML_ParserStruct, void (*)(XML_Parser)> parser_;
  std::size_t depth_ = 0;  // elements open
  bool in_object_ = false, in_name_ = false, named_ = false;
  std::string name_;
  std::vector<std::string> objects_;
  std::string why_;
  std::uint64_t line_ = 0, byte_ = 0;
};

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
    Annotation annotation;
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
      for (const std::string& name : annotation.objects())
        add_bounded(found_.tally.classes, found_.tally.further_classes, name);
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
