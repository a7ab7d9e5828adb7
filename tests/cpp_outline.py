# Owns a rough reading of C++ as clang-format lays it out: the functions of a file, how long they
# are, and the names that it declares. It reads text, not the language; macros are not expanded.
import re
from bisect import bisect_right
from typing import NamedTuple

LITERAL_OR_COMMENT = re.compile(
    r'R"(?P<raw>[^()\s\\]{0,16})\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|//[^\n]*|/\*.*?\*/", re.DOTALL)
DIRECTIVE = re.compile(r"^[ ]*#(?:\\\n|[^\n])*", re.MULTILINE)
BRACKET = re.compile(r"[{}();]")

BEFORE_A_DECLARATION = re.compile(r"(\s|\b(public|private|protected)\s*:(?!:)|\[\[[^\]]*\]\])*")
OPENS_A_SCOPE = re.compile(r"(inline\s+)?(namespace|class|struct|union|extern\s*$)\b")
OPENS_NAMESPACE = re.compile(r"$|(inline\s+)?namespace\b|extern\b")
DECLARES_NOTHING = re.compile(r"(using|typedef|friend|static_assert|namespace|enum|concept)\b")
TYPE = re.compile(r"(?:enum\s+class|enum|class|struct|union)\s+(?:alignas\([^)]*\)\s*)?"
                  r"(?:\[\[[^\]]*\]\]\s*)?(\w+)\s*(?:final\b|:(?!:)|$)")
CONSTANT = re.compile(r"\b(k[A-Z]\w*)\s*(?:\[[^\]]*\]\s*)*(?:=(?!=)|\{|$)")
FUNCTION = re.compile(r"\boperator\b|([~\w:]+)(?:<[^()]*>)?\s*\(")
NOT_A_FUNCTION = {"alignas", "decltype", "requires", "noexcept", "explicit", "__attribute__",
                  "sizeof", "and", "or", "not"}


class Function(NamedTuple):
    name: str    # with its class, as a definition outside of it says it; a test: Suite.Case
    line: int    # of its first word
    length: int  # lines that hold code, from its first word to its closing brace


class Outline(NamedTuple):
    functions: list  # those with a body, as Function
    declared: list   # (name, line) of functions and constants, at declarations and definitions
    overrides: set   # names among them of functions that the users of a base call
    types: list      # (name, line) of types that are defined in a namespace, not within a type


def without_literals(text):
    """The text with a space and the line ends in place of each literal and comment."""
    return LITERAL_OR_COMMENT.sub(lambda found: " " + "\n" * found[0].count("\n"), text)


def without_directives(text):
    return DIRECTIVE.sub(lambda found: "\n" * found[0].count("\n"), text)


def without_template(head):
    """What follows the leading template<...> parts of a declaration."""
    while re.match(r"template\s*<", head):
        depth = 0
        for at, char in enumerate(head):
            depth += (char == "<") - (char == ">" and head[at - 1] != "-")
            if char == ">" and depth == 0:
                break
        head = head[at + 1:].lstrip()
    return head


def function_name(head):
    """The name that a declaration gives to a function; None if it declares something else."""
    name = None
    for found in FUNCTION.finditer(head):
        name = found[1] or "operator"
        if name not in NOT_A_FUNCTION:
            break
    assigned = head.find("=", 0, found.start()) if name else -1
    if not name or name in NOT_A_FUNCTION or assigned >= 0 or DECLARES_NOTHING.match(head):
        return None
    if re.match(r"TEST(_[FP])?\b", head):
        return ".".join(re.findall(r"\w+", head)[1:3])
    return name


def declared_name(head):
    """The name by which others may use what is declared: destructors and operators have none."""
    if DECLARES_NOTHING.match(head):
        return None
    constant = CONSTANT.search(head)
    if constant and "(" not in head[:constant.start()]:
        return constant[1]
    name = (function_name(head) or "operator").split("::")[-1]
    return None if name == "operator" or name.startswith("~") else name


class Reader:
    """Walks over the brackets of a file. What is declared in a namespace or a type is looked at;
    what is within the braces of a function, an initialiser or an enumeration is passed over."""

    def __init__(self, bare_text):
        self.text = without_directives(bare_text)
        self.line_ends = [found.start() for found in re.finditer("\n", self.text)]
        self.functions = []
        self.declared = []
        self.overrides = set()
        self.types = []
        self.type_depth = []  # of each open scope: whether it is a type's
        self.start = 0  # of the present declaration

    def first_word(self):
        return BEFORE_A_DECLARATION.match(self.text, self.start).end()

    def line_of(self, at):
        return bisect_right(self.line_ends, at - 1) + 1

    def head(self, end):
        return without_template(self.text[self.first_word():end].strip())

    def opens_a_scope(self, at):
        head = self.head(at)
        return not head or bool(OPENS_A_SCOPE.match(head)) and function_name(head) is None

    def is_body(self, at):
        """clang-format sets a space before a body's brace, and none before an initialiser's."""
        head = self.head(at)
        return (self.text[at - 1].isspace() and head[-1:] not in "=,"
                and function_name(head) is not None)

    def note_declaration(self, end):
        head = self.head(end)
        name = declared_name(head)
        if name:
            if re.search(r"\boverride\b", head):
                self.overrides.add(name)
            self.declared.append((name, self.line_of(self.first_word())))

    def note_type(self, at):
        found = TYPE.match(self.head(at))
        if found and not any(self.type_depth):
            self.types.append((found[1], self.line_of(self.first_word())))

    def note_function(self, body, end):
        first = self.first_word()
        length = sum(1 for line in self.text[first:end].split("\n") if line.strip())
        name = function_name(self.head(body))
        self.functions.append(Function(name, self.line_of(first), length))

    def read(self):
        parentheses = 0
        braces, body = 0, None  # within braces that are passed over; where a function's began
        for bracket in BRACKET.finditer(self.text):
            at, char = bracket.start(), bracket[0]
            if braces:
                braces += (char == "{") - (char == "}")
                if not braces and body is not None:
                    self.note_function(body, at + 1)
                    self.start, body = at + 1, None
            elif char in "()":
                parentheses += 1 if char == "(" else -1
            elif char == "{" and (parentheses or not self.opens_a_scope(at)):
                braces = 1
                if not parentheses:
                    self.note_type(at)  # an enumeration
                if not parentheses and self.is_body(at):
                    self.note_declaration(at)
                    body = at
            elif char == "{":
                self.note_type(at)
                self.type_depth.append(not OPENS_NAMESPACE.match(self.head(at)))
                self.start = at + 1
            elif char == "}":
                del self.type_depth[-1:]
                self.start = at + 1
            elif not parentheses:
                self.note_declaration(at)
                self.start = at + 1
        return Outline(self.functions, self.declared, self.overrides, self.types)


def outline(bare_text):
    """Of a text that went through without_literals()."""
    return Reader(bare_text).read()
