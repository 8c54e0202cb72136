// csv: RFC 4180. https://www.rfc-editor.org/rfc/rfc4180
#include "dataset/internal/delimited.h"

namespace varda::dataset {

extern const Format kCsv;
const Format kCsv{.name = "csv",
                  .sample = "a record of RFC 4180, without the header",
                  .extension = ".csv",
                  .stream = [](const FormatOptions& options) -> std::unique_ptr<StreamScanner> {
                    return std::make_unique<DelimitedScanner>(
                        Dialect{.delimiter = ',', .quote = '"'}, options);
                  }};

}  // namespace varda::dataset
