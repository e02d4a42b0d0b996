//! The allowed subset of minijinja's language: reading values, `if`, `for`, and a few filters. No
//! assignments, calls, arithmetic or repetition, so that the output cannot grow faster than its template.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what minijinja adds to its language is not let in either"
)]

use std::collections::BTreeSet;

use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, Stmt};
use minijinja::machinery::{Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::TEMPLATE_BYTES_MAX;
use super::filters::{FILTERS, TESTS};

/// Maximum tokens between `{{` and `}}`, which also bounds the nesting of expressions.
const TAG_TOKENS_MAX: usize = 120;

/// Maximum number of `{% … %}` in a template, which also bounds the nesting of conditions.
const BLOCKS_MAX: usize = 100;

/// The free names of a template, without duplicates; or what is wrong with it.
pub fn free_names(source: &str) -> Result<Vec<String>, String> {
    if source.len() > TEMPLATE_BYTES_MAX {
        return Err(format!("a template has at most {TEMPLATE_BYTES_MAX} bytes"));
    }
    if !super::has_tags(source) {
        return Ok(Vec::new());
    }
    bounded(source)?;
    let tree = parse(source, "template", SyntaxConfig::default()).map_err(|error| said(&error))?;
    let mut reader = Reader::default();
    reader.statement(&tree)?;
    Ok(reader.free.into_iter().collect())
}

fn said(error: &minijinja::Error) -> String {
    let detail = error.detail().unwrap_or("cannot be read");
    match error.line() {
        Some(line) => format!("line {line}: {detail}"),
        None => detail.to_owned(),
    }
}

/// The expression of a text that is a single `{{…}}`.
pub(super) fn only_expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let inner = inner.strip_prefix('-').unwrap_or(inner);
    let inner = inner.strip_suffix('-').unwrap_or(inner);
    (!inner.contains("{{") && !inner.contains("}}")).then(|| inner.trim())
}

/// Bounds the recursion of the parser for any input.
fn bounded(source: &str) -> Result<(), String> {
    let (mut tokens, mut blocks) = (0, 0);
    for token in tokenize(source, false, SyntaxConfig::default()) {
        let (token, _) = token.map_err(|error| said(&error))?;
        match token {
            Token::TemplateData(_) => {}
            Token::VariableStart => tokens = 0,
            Token::BlockStart => {
                tokens = 0;
                blocks += 1;
            }
            _ => tokens += 1,
        }
        if tokens > TAG_TOKENS_MAX {
            return Err(format!("an expression has at most {TAG_TOKENS_MAX} words"));
        }
        if blocks > BLOCKS_MAX {
            return Err(format!("a template has at most {BLOCKS_MAX} of {{% %}}"));
        }
    }
    Ok(())
}

#[derive(Default)]
struct Reader<'a> {
    free: BTreeSet<String>,
    bound: Vec<&'a str>,
}

const ONLY: &str = "only values, `if`, `for`, comparisons and a few filters are possible here";

impl<'a> Reader<'a> {
    fn statements(&mut self, statements: &[Stmt<'a>]) -> Result<(), String> {
        statements.iter().try_for_each(|one| self.statement(one))
    }

    fn statement(&mut self, statement: &Stmt<'a>) -> Result<(), String> {
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitRaw(_) => Ok(()),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::IfCond(cond) => {
                self.expression(&cond.expr)?;
                self.statements(&cond.true_body)?;
                self.statements(&cond.false_body)
            }
            Stmt::ForLoop(each) => {
                self.expression(&each.iter)?;
                if each.recursive || each.filter_expr.is_some() {
                    return Err(ONLY.to_owned());
                }
                let bound = self.bound.len();
                self.bound.push("loop");
                self.target(&each.target)?;
                self.statements(&each.body)?;
                self.bound.truncate(bound);
                self.statements(&each.else_body)
            }
            _ => Err(ONLY.to_owned()),
        }
    }

    fn target(&mut self, target: &Expr<'a>) -> Result<(), String> {
        match target {
            Expr::Var(var) => {
                self.bound.push(var.id);
                Ok(())
            }
            Expr::List(list) => list.items.iter().try_for_each(|one| self.target(one)),
            Expr::Tuple(list) => list.items.iter().try_for_each(|one| self.target(one)),
            _ => Err(ONLY.to_owned()),
        }
    }

    fn expression(&mut self, expression: &Expr<'a>) -> Result<(), String> {
        match expression {
            Expr::Var(var) => {
                if !self.bound.contains(&var.id) {
                    self.free.insert(var.id.to_owned());
                }
                Ok(())
            }
            Expr::Const(_) => Ok(()),
            Expr::UnaryOp(op) => self.expression(&op.expr),
            Expr::BinOp(op) => {
                match op.op {
                    BinOpKind::Eq
                    | BinOpKind::Ne
                    | BinOpKind::Lt
                    | BinOpKind::Lte
                    | BinOpKind::Gt
                    | BinOpKind::Gte
                    | BinOpKind::ScAnd
                    | BinOpKind::ScOr
                    | BinOpKind::In => {}
                    _ => return Err(ONLY.to_owned()),
                }
                self.expression(&op.left)?;
                self.expression(&op.right)
            }
            Expr::Compare(compare) => {
                self.expression(&compare.expr)?;
                compare
                    .ops
                    .iter()
                    .try_for_each(|op| self.expression(&op.expr))
            }
            Expr::IfExpr(choice) => {
                self.expression(&choice.test_expr)?;
                self.expression(&choice.true_expr)?;
                choice
                    .false_expr
                    .as_ref()
                    .map_or(Ok(()), |other| self.expression(other))
            }
            Expr::Filter(filter) => {
                if !FILTERS.contains(&filter.name) {
                    let known = FILTERS.join(", ");
                    return Err(format!(
                        "unknown filter {:?}; known filters are {known}",
                        filter.name
                    ));
                }
                self.arguments(&filter.args)?;
                filter
                    .expr
                    .as_ref()
                    .map_or(Err(ONLY.to_owned()), |expr| self.expression(expr))
            }
            Expr::Test(test) => {
                if !TESTS.contains(&test.name) {
                    let known = TESTS.join(", ");
                    return Err(format!(
                        "unknown test {:?}; known tests are {known}",
                        test.name
                    ));
                }
                self.arguments(&test.args)?;
                self.expression(&test.expr)
            }
            Expr::GetAttr(get) => self.expression(&get.expr),
            Expr::GetItem(get) => {
                self.expression(&get.expr)?;
                self.expression(&get.subscript_expr)
            }
            Expr::List(list) => list.items.iter().try_for_each(|one| self.expression(one)),
            Expr::Slice(_) | Expr::Call(_) | Expr::Tuple(_) | Expr::Map(_) => Err(ONLY.to_owned()),
        }
    }

    fn arguments(&mut self, arguments: &[CallArg<'a>]) -> Result<(), String> {
        arguments.iter().try_for_each(|one| match one {
            CallArg::Pos(expression) => self.expression(expression),
            _ => Err(ONLY.to_owned()),
        })
    }
}
