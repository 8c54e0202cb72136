#include "dataset/format.h"

#include <algorithm>

#include "base/text.h"
#include "dataset/internal/scanner.h"

namespace varda::dataset {

// A new format needs its file in formats/ and its name here.
extern const Format kCsv, kTsv, kTxt, kJsonl, kJson, kCoco, kVoc, kXml, kImageFolder, kIdx;

const std::vector<const Format*>& formats() {
  static const std::vector<const Format*> all = {&kCsv,  &kTsv, &kTxt, &kJsonl,       &kJson,
                                                 &kCoco, &kVoc, &kXml, &kImageFolder, &kIdx};
  return all;
}

Result<const Format*> find_format(std::string_view name) {
  const std::string wanted = lower(name.substr(0, 64));
  std::string known;
  for (const Format* format : formats()) {
    if (format->name == wanted) return format;
    known += (known.empty() ? "" : ", ") + std::string(format->name);
  }
  return Error(Code::kInvalid, "there is no format \"" + wanted + "\"; there are " + known);
}

Result<Header> parse_header(std::string_view text) {
  for (const Header header : {Header::kAuto, Header::kYes, Header::kNo}) {
    if (text == to_string(header)) return header;
  }
  return Error(Code::kInvalid,
               "header is auto, yes or no, not \"" + std::string(text.substr(0, 64)) + "\"");
}

std::string_view to_string(Header header) {
  switch (header) {
    case Header::kYes:
      return "yes";
    case Header::kNo:
      return "no";
    case Header::kAuto:
      break;
  }
  return "auto";
}

}  // namespace varda::dataset
