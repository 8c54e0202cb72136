// json: one array with the samples as elements.
#include "dataset/internal/json_file.h"

namespace varda::dataset {
namespace {

class ArrayScanner final : public JsonFileScanner {
 public:
  ArrayScanner() : JsonFileScanner(0) {}
  ArrayScanner(const ArrayScanner&) = default;

 private:
  void begin(std::size_t depth, JsonStream::Kind kind, std::uint64_t at,
             std::uint64_t line) override {
    if (depth == 0 && kind != JsonStream::Kind::kArray)
      wrong_file("the file is not an array", at, line);
  }
  void end(std::size_t depth, JsonStream::Kind, std::string_view, bool) override {
    if (depth == 1 && !is_wrong_file()) ++tally_.samples;
  }
  std::unique_ptr<StreamScanner> clone() const override {
    return std::make_unique<ArrayScanner>(*this);
  }
};

}  // namespace

extern const Format kJson;
const Format kJson{.name = "json",
                   .sample = "an element of a file's array",
                   .extension = ".json",
                   .stream = [](const FormatOptions&) -> std::unique_ptr<StreamScanner> {
                     return std::make_unique<ArrayScanner>();
                   }};

}  // namespace varda::dataset
