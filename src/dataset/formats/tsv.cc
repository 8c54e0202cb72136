// tsv: IANA text/tab-separated-values, without quoting.
// https://www.iana.org/assignments/media-types/text/tab-separated-values
#include "dataset/internal/delimited.h"

namespace varda::dataset {

extern const Format kTsv;
const Format kTsv{.name = "tsv",
                  .sample = "a line of fields between tabs, without the header",
                  .extension = ".tsv",
                  .stream = [](const FormatOptions& options) -> std::unique_ptr<StreamScanner> {
                    return std::make_unique<DelimitedScanner>(
                        Dialect{.delimiter = '\t', .quote = '\0'}, options);
                  }};

}  // namespace varda::dataset
